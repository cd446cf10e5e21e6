// Which process this is and on which machine, for lock files that other processes judge.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace sluice::platform {

enum class System : uint8_t { kLinux, kMac, kWindows };
[[nodiscard]] System current_system();

[[nodiscard]] int64_t process_id();
// Whether a process of this machine runs. True also for those of other users.
[[nodiscard]] bool process_alive(int64_t id);
// The machine's name, of letters, digits, dots and hyphens; at most 63 characters.
[[nodiscard]] std::string host_name();
// The name as above of a machine that the system calls `given`.
[[nodiscard]] std::string plain_host_name(std::string_view given);
// An environment variable in UTF-8; empty if it is not set.
[[nodiscard]] std::string environment(const char* name);

}  // namespace sluice::platform
