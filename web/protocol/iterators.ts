// Iterators that can be left at any moment, and streams of them. They are no async generators,
// whose return() waits behind a next() under way.

/** What an iterator says at its end. */
export const kDone = { done: true, value: undefined } as const;

/** An iterator that can be left at any moment: `leave` is called once, when somebody does. */
export function leavable<T>(
  next: () => Promise<IteratorResult<T, void>>,
  leave: () => void,
): AsyncIterableIterator<T> {
  let left = false;
  const end = (): void => {
    if (!left) leave();
    left = true;
  };
  return {
    next: async () => (left ? kDone : next()),
    return: async () => (end(), kDone),
    throw: async (error) => {
      end();
      throw error;
    },
    [Symbol.asyncIterator]() {
      return this;
    },
  };
}

/** What an iterator gives, as a stream; cancelling the stream leaves the iterator. */
export function streamOf<T, Out>(
  iterator: AsyncIterator<T>,
  map: (value: T) => Out,
): ReadableStream<Out> {
  return new ReadableStream<Out>({
    pull: async (controller) => {
      const { done, value } = await iterator.next();
      if (done) controller.close();
      else controller.enqueue(map(value));
    },
    cancel: () => void iterator.return!(),
  });
}
