#include "plan/traffic.h"

#include "base/check.h"

namespace trireme::plan {

TrafficTable predict_traffic(const model::ParameterTable& table, const Layout& layout, const Batch& batch,
                             const RunInputs& inputs, int rank) {
  const std::vector<int> data_hosts = hosts_of(inputs, process_group_of(layout, Axis::kData, rank));
  TrafficTable table_of_traffic;
  for_each_exchange(table, layout, batch, inputs, rank, [&](const Exchange& e) {
    const std::int64_t elements =
        sent_elements(algorithm_of(layout, e.group), e.collective, e.count, e.index, e.size, data_hosts);
    Traffic& traffic = table_of_traffic[{axis_of(e.group), e.collective}];
    ++traffic.calls;
    traffic.sent += Bytes{checked_multiply(elements, e.element_bytes)};
  });
  return table_of_traffic;
}

}  // namespace trireme::plan
