// Counters in memory shared by a worker of Node that has loaded WebGPU and its owner.

export const enum GpuWork {
  /** Promises of WebGPU that have not settled. */
  Pending,
  /** 1: the worker is to end, and starts nothing more. */
  Ending,
  /** 1: the worker waits to be ended, outside of WebGPU's calls. */
  Parked,
  Count,
}
