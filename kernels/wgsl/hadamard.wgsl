// The Hadamard transform of n values, as the CPU applies it where the KV cache is quantized: of the
// greatest power of two in n, then of the rest in the same way. It is its own inverse. Value i is in a
// part of this size, which begins at a multiple of twice its size: the bits of i below that are its
// place in the part.
fn size_of(i: u32, n: u32) -> u32 {
  return 1u << firstLeadingBit(i ^ n);
}
