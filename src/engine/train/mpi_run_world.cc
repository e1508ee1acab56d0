#include "engine/train/mpi_run_world.h"

namespace trireme::train {
namespace {

class MpiRunWorld : public RunWorld {
 public:
  MpiRunWorld(const comm::Launch& launch, Env& env, comm::MpiOptions options)
      : world_(launch, env, std::move(options)) {}

  int ranks() const override { return world_.size(); }
  std::vector<int> own_ranks() const override { return {world_.rank()}; }
  std::string text() const override { return world_.text(); }
  plan::Backend backend() const override { return plan::Backend::kMessages; }
  comm::CommunicatorFactory factory(int) override {
    return [this](const comm::GroupName& name, const comm::GroupOptions& options) {
      return world_.make_communicator(name, options);
    };
  }
  void set_deadline(Seconds deadline) override { world_.set_deadline(deadline); }
  void report_lost(int, const std::string& reason) override { world_.report_lost(reason); }
  void shut_down() override { world_.shut_down(); }

 private:
  comm::MpiWorld world_;
};

}  // namespace

std::unique_ptr<RunWorld> make_mpi_run_world(const comm::Launch& launch, Env& env, comm::MpiOptions options) {
  return std::make_unique<MpiRunWorld>(launch, env, std::move(options));
}

}  // namespace trireme::train
