#pragma once

// The `most` items of smallest key among all that were offered; of equal keys the earlier ones.

#include <algorithm>
#include <cstddef>
#include <vector>

namespace trireme::planner {

template <class Item>
class BoundedBest {
 public:
  explicit BoundedBest(std::size_t most) : most_(most) {}

  void offer(double key, const Item& item) {
    if (heap_.size() == most_) {
      dropped_ = true;
      if (key >= heap_.front().key) return;
      std::ranges::pop_heap(heap_, before);
      heap_.pop_back();
    }
    heap_.push_back({key, next_++, item});
    std::ranges::push_heap(heap_, before);
  }
  bool dropped() const { return dropped_; }

  // Ascending; leaves nothing behind.
  std::vector<Item> take() {
    std::ranges::sort(heap_, before);
    std::vector<Item> items;
    for (Entry& entry : heap_) items.push_back(std::move(entry.item));
    heap_.clear();
    return items;
  }

 private:
  struct Entry {
    double key;
    std::size_t order;
    Item item;
  };
  static bool before(const Entry& a, const Entry& b) { return a.key != b.key ? a.key < b.key : a.order < b.order; }

  std::size_t most_;
  std::size_t next_ = 0;
  bool dropped_ = false;
  std::vector<Entry> heap_;
};

}  // namespace trireme::planner
