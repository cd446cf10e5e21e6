// Async iterators that can be ended at any time, and streams made from them. They are not async
// generators, whose return() waits until a pending next() has settled.

/** Result of a finished iterator. */
export const kDone = { done: true, value: undefined } as const;

/** An iterator that can be ended at any time. return() or throw() call `leave`, once. */
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

/** A stream of an iterator's mapped values. Cancelling the stream ends the iterator. */
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
