// Inputs of vision encoders as executors outside of the engine read them, for every family.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "media/preprocess.h"
#include "vision/flat_input.h"
#include "vision/geometry.h"
#include "vision_encoder_util.h"

namespace sluice::test {
namespace {

using nlohmann::json;
using vision::FlatInput;
using vision::FlatOp;
using vision::OpKind;

const float* table_of(const FlatInput& flat, const FlatOp& op) {
  return flat.tables.as<float>() + op.table;
}

void check_patches(const FlatInput& flat, const vision::Program& program,
                   const media::Projector& projector, const media::Image& image) {
  std::vector<float> pixels(image.size());
  media::normalize(projector, image, pixels);
  const auto side = static_cast<size_t>(program.ops[0].n);
  const auto* patch = flat.patches.as<float>();
  for (const vision::Cell cell :
       vision::order_cells(flat.sizes.columns, flat.sizes.rows, program.order, program.window)) {
    for (size_t i = 0; i < 3 * side * side; ++i, ++patch) {
      const size_t channel = i / (side * side), y = i / side % side, x = i % side;
      const size_t at = (cell.row * side + y) * image.width + cell.column * side + x;
      const float value = pixels[3 * at + channel];
      ASSERT_EQ(*patch, program.shifted ? 2 * value - 1 : value);
    }
  }
}

// Rows of a table of positions exist, and the weights of a patch add up to 1.
void check_positions(const FlatInput& flat, const FlatOp& op) {
  const float* at = table_of(flat, op);
  const float rows = static_cast<float>(flat.mats[static_cast<size_t>(op.mat)].rows);
  for (uint32_t row = 0; row < op.rows; ++row) {
    float sum = 0;
    for (uint32_t tap = 0; tap < op.taps; ++tap) {
      const float from = *at++;
      ASSERT_TRUE(from >= 0 && from < rows);
      if (op.weighted != 0) sum += *at++;
    }
    if (op.weighted != 0) {
      ASSERT_NEAR(sum, 1, 1e-5);
    }
  }
}

// A row sees itself, and no key that does not exist.
void check_reach(const FlatInput& flat, const FlatOp& op) {
  const float* at = table_of(flat, op);
  for (uint32_t row = 0; row < op.in_rows; ++row, at += 2) {
    ASSERT_TRUE(at[0] <= static_cast<float>(row) && static_cast<float>(row) < at[1]);
    ASSERT_TRUE(at[0] >= 0 && at[1] <= static_cast<float>(op.in2_rows));
  }
}

// Every row of `in` is listed once.
void check_rows(const FlatInput& flat, const FlatOp& op, size_t n) {
  std::vector<int> seen(op.in_rows);
  const float* at = table_of(flat, op);
  for (size_t i = 0; i < n; ++i) {
    if (at[i] >= 0) ++seen.at(static_cast<size_t>(at[i]));
  }
  EXPECT_EQ(std::count(seen.begin(), seen.end(), 1), static_cast<int64_t>(op.in_rows));
}

void check_angles(const FlatInput& flat, const FlatOp& op) {
  const uint32_t rot = flat.halves ? op.n / 2 : op.n;
  const float* at = table_of(flat, op);
  for (uint32_t row = 0; row < op.rows * (op.n / rot); ++row, at += rot) {
    for (uint32_t i = 0; i < rot / 2; ++i) {
      ASSERT_NEAR(std::hypot(at[i], at[rot / 2 + i]), 1, 1e-6);
    }
  }
}

TEST(FlatInput, DescribesEveryFamilyWithinItsSmallestBudget) {
  std::vector<size_t> seen(static_cast<size_t>(OpKind::kEmit) + 1);
  for (const json& family : vision_manifest()) {
    const json& entry = family["cases"][0];
    if (has_sound(entry)) continue;
    SCOPED_TRACE(family["name"].get<std::string>());
    const auto file = parse_file(vision_folder() / family["mmproj"].get<std::string>());
    const auto inputs = inputs_of(open_encoder(*file)->projector(), entry);
    const auto plan = open_encoder(*file)->encoder().plan_for(inputs[0].width, inputs[0].height, 0);
    ASSERT_TRUE(plan.ok());
    const auto opened = open_encoder(*file, {.memory_budget = plan->minimum});
    const vision::Program& program = opened->encoder().program();
    const auto flat = opened->encoder().flatten(inputs[0]);
    ASSERT_TRUE(flat.ok()) << flat.status().message();
    ASSERT_EQ(flat->ops.size(), program.ops.size());
    EXPECT_EQ(flat->mats.size(), program.mats.size());
    EXPECT_EQ(flat->vecs.size(), program.vecs.size());
    check_patches(*flat, program, opened->projector(), inputs[0]);
    for (const FlatOp& op : flat->ops) {
      ++seen.at(op.kind);
      const auto kind = static_cast<OpKind>(op.kind);
      if (kind == OpKind::kAddTable) check_positions(*flat, op);
      if (kind == OpKind::kAttention && op.table >= 0) check_reach(*flat, op);
      if (kind == OpKind::kRope) check_angles(*flat, op);
      if (kind == OpKind::kMerge || kind == OpKind::kPool) {
        check_rows(*flat, op, size_t{op.rows} * op.n * op.n);
      }
      if (kind == OpKind::kEmit && op.table >= 0) {
        const size_t around = (op.vec >= 0 ? 1 : 0) + (op.vec2 >= 0 ? 1 : 0);
        check_rows(*flat, op, static_cast<size_t>(flat->sizes.n_tokens) - around);
      }
    }
  }
  for (const OpKind kind : {OpKind::kAddTable, OpKind::kAttention, OpKind::kRope, OpKind::kMerge}) {
    EXPECT_GT(seen[static_cast<size_t>(kind)], 0u);
  }
}

TEST(FlatInput, RefusesLessMemoryThanItTakes) {
  const json family = vision_manifest()[0];
  const auto file = parse_file(vision_folder() / family["mmproj"].get<std::string>());
  const auto inputs = inputs_of(open_encoder(*file)->projector(), family["cases"][0]);
  const auto whole = open_encoder(*file)->encoder().flatten(inputs[0]);
  ASSERT_TRUE(whole.ok());
  const auto refused =
      open_encoder(*file, {.memory_budget = whole->patches.size()})->encoder().flatten(inputs[0]);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.status().code(), Code::kBudgetTooSmall);
}

}  // namespace
}  // namespace sluice::test
