// The channel that delivers a job's events to the thread of its connection.
#include <gtest/gtest.h>

#include <utility>

#include "platform/socket.h"
#include "serve/job.h"

namespace sluice::serve {
namespace {

bool readable(const Channel& channel) {
  return platform::wait_for(channel.descriptor(), platform::Until::kInput, -1, 0).socket;
}

Event long_event() {
  Event event;
  event.kind = Event::Kind::kPiece;
  event.piece.text.assign(Channel::kMaxBytes / 3, 'x');
  return event;
}

TEST(ServeChannel, DeliversEventsInOrderAndSignalsThem) {
  Channel channel;
  ASSERT_TRUE(channel.usable());
  EXPECT_FALSE(readable(channel));
  for (int32_t i = 0; i < 3; ++i) ASSERT_TRUE(channel.push({.index = i}));
  Event event;
  for (int32_t i = 0; i < 3; ++i) {
    EXPECT_TRUE(readable(channel));
    ASSERT_TRUE(channel.pop(&event));
    EXPECT_EQ(event.index, i);
  }
  EXPECT_FALSE(readable(channel));
  EXPECT_FALSE(channel.pop(&event));
}

TEST(ServeChannel, HoldsNoMoreThanItsByteLimit) {
  Channel channel;
  ASSERT_TRUE(channel.push(long_event()));
  ASSERT_TRUE(channel.push(long_event()));
  Event third = long_event();
  EXPECT_FALSE(channel.push(std::move(third)));
  EXPECT_EQ(third.piece.text.size(), Channel::kMaxBytes / 3);  // still owned by the caller
  Event event;
  EXPECT_TRUE(channel.pop(&event));
  EXPECT_TRUE(channel.push(std::move(third)));
  // A client that disconnects blocks nobody.
  channel.leave();
  EXPECT_TRUE(channel.push(long_event()));
  EXPECT_TRUE(channel.left());
}

// The engine's thread gives up readers that do not read. They must not wait for the rest.
TEST(ServeChannel, WakesItsReaderWhenItIsLeft) {
  Channel channel;
  Event event;
  ASSERT_TRUE(channel.push({}));
  ASSERT_TRUE(channel.pop(&event));
  EXPECT_FALSE(readable(channel));
  channel.leave();
  EXPECT_TRUE(readable(channel));
  EXPECT_FALSE(channel.pop(&event));
}

}  // namespace
}  // namespace sluice::serve
