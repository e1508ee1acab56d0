#pragma once

// A file descriptor that has one owner.

#include <utility>

namespace trireme {

class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(int number) : number_(number) {}
  Descriptor(Descriptor&& other) noexcept : number_(std::exchange(other.number_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    if (this != &other) {
      close();
      number_ = std::exchange(other.number_, -1);
    }
    return *this;
  }
  ~Descriptor() { close(); }

  int number() const { return number_; }                // -1: none
  int release() { return std::exchange(number_, -1); }  // its owner is another from now on
  void close();

 private:
  int number_ = -1;
};

// Fills those of descriptors 0 to 2 that this process was started without, so that no file it opens gets one of them,
// and with it what is printed. Reading the first gives nothing, writing to standard output fails as before, and what is
// written to standard error is lost as before. First of all that the program does.
void fill_standard_descriptors();

}  // namespace trireme
