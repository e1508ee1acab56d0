#pragma once

// Texts cut into parts, as views of them. Thread-safe.

#include <string_view>
#include <vector>

namespace trireme {

// The parts between the characters `at`, empty ones too: at least one.
std::vector<std::string_view> split(std::string_view text, char at);

// What blanks (spaces, tabs, carriage returns) keep apart; none is empty.
std::vector<std::string_view> words_of(std::string_view text);

}  // namespace trireme
