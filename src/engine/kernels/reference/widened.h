#pragma once

// Narrow operands for loops that know F32 and F64 only: an F32 copy of each, and of results back, rounded. The plain
// meaning of kernels.h's rule of types.

#include <list>
#include <vector>

#include "engine/kernels/tensor.h"

namespace trireme::kernels::reference {

class Widened {
 public:
  Widened() = default;
  ~Widened();  // rounds the results into place
  Widened(const Widened&) = delete;
  Widened& operator=(const Widened&) = delete;

  // Replaces views that are narrow. Two for one piece of memory are two copies: results are written in the order of the
  // calls.
  template <class... Views>
  void in(Views&... views) {
    (replace(views), ...);
  }
  // Replaces those that are F32 by what they are as rounded to a narrow type.
  template <class... Views>
  void rounded(DType dtype, Views&... views) {
    (replace_rounded(dtype, views), ...);
  }
  template <class... Views>
  void out(Views&... views) {  // with what they hold now
    (replace_result(views), ...);
  }

 private:
  struct Copy {
    std::vector<float> values;
    TensorView to;  // empty: of an input
  };
  void replace(ConstTensorView& view);
  void replace_rounded(DType dtype, ConstTensorView& view);
  void replace_result(TensorView& view);
  TensorView copy_of(ConstTensorView view, TensorView to);
  std::list<Copy> copies_;
};

}  // namespace trireme::kernels::reference
