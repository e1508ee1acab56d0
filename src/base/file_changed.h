#pragma once

// What RandomReader::read_at throws where the file is another than it was when it was opened: written to or cut short
// meanwhile. What was read before may not belong to what would be read now.

#include <string>

#include "base/error.h"

namespace trireme {

class FileChanged : public Error {
 public:
  // change: "it had 12 bytes when it was opened, and has 0".
  FileChanged(const std::string& path, std::string change)
      : Error(ExitCode::kStorage, "files", "read " + path, "changed while it was being read: " + change,
              "leave files alone that a run reads"),
        change_(std::move(change)) {}

  const std::string& change() const { return change_; }

 private:
  std::string change_;
};

}  // namespace trireme
