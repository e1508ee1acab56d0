#pragma once

// What a kernel took, over all its calls.

#include <cstdint>
#include <string>

namespace trireme::telemetry {

struct KernelTimes {
  std::string kernel;  // "attention_forward"; a product by its shape: "gemm NT 512 x 768 x 3072"
  std::int64_t calls = 0;
  double seconds = 0;
  double flops = 0;  // of products, those of attention among them; 0: none to speak of
  double bytes = 0;  // of its operands, each once: what must go through memory where none is in a cache
};

}  // namespace trireme::telemetry
