#pragma once

// Memory that a process and the children that it forks see alike, zero at first. Not for what needs a destructor.

#include <cstddef>
#include <span>

namespace trireme {

class SharedPages {
 public:
  // Error(kInternal) where the system gives none.
  explicit SharedPages(std::size_t bytes);
  ~SharedPages();
  SharedPages(const SharedPages&) = delete;
  SharedPages& operator=(const SharedPages&) = delete;

  std::span<std::byte> bytes() const { return bytes_; }

 private:
  std::span<std::byte> bytes_;
};

}  // namespace trireme
