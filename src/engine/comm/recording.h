#pragma once

// Writes a rank's operations into its flight recorder: a decorator of any communicator. An operation is recorded before
// it is posted, so that one whose posting blocks is seen too, and ends with the time at which its data had moved, once
// this rank has found out by done() or wait(). One that fails stays unfinished.

#include <memory>

#include "engine/comm/communicator.h"
#include "telemetry/flight_recorder.h"

namespace trireme::comm {

// `recorder` outlives the communicator and its requests.
std::unique_ptr<Communicator> make_recording_communicator(std::unique_ptr<Communicator> inner,
                                                          telemetry::FlightRecorder& recorder);

}  // namespace trireme::comm
