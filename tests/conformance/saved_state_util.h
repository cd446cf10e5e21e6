// Saving and restoring a session, for engines that know the weights of their files.
#pragma once

#include <gtest/gtest.h>

#include <vector>

#include "fixtures_util.h"

namespace sluice::test {

inline std::vector<uint8_t> save(Opened& opened) {
  EXPECT_TRUE(opened.model->identify().ok());
  std::vector<uint8_t> out(opened.session->sequence().state_bytes());
  EXPECT_TRUE(opened.session->read_state(0, out).ok());
  return out;
}

inline Status restore(Opened& opened, const std::vector<uint8_t>& state) {
  SLUICE_RETURN_IF_ERROR(opened.model->identify());
  SLUICE_RETURN_IF_ERROR(opened.session->begin_restore(state.size()));
  return opened.session->write_state(state);
}

}  // namespace sluice::test
