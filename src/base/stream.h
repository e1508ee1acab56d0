#pragma once

// The queue of a device that work is put on, as an opaque handle: what kernels and collectives share without knowing
// each other. On the CPU it is empty, since work is done when the call returns.

namespace trireme {

struct Stream {
  void* native = nullptr;
};

}  // namespace trireme
