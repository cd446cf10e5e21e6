// Where tests find the checkout, the fixtures and the programs of this build. Only paths.cpp is
// compiled with these paths, so a compiler cache serves every checkout.
#pragma once

#include <string>

namespace sluice::test {

std::string source_dir();  // the checkout
std::string shared_dir();  // "../shared", which may be absent
std::string program_path(
    const std::string& name);  // of this build: "sluice", "sluice-make-model" ...

}  // namespace sluice::test
