#pragma once

// What Env::remove_owned and Env::remove_tree do on the real file system: by descriptors of directories, each opened
// below the one before, so that no link leads out of them whatever another process renames meanwhile.

#include <functional>
#include <string>
#include <vector>

namespace trireme {

std::vector<std::string> posix_remove_owned(const std::string& path,
                                            const std::function<bool(const std::string& name)>& ours);
void posix_remove_tree(const std::string& path);

}  // namespace trireme
