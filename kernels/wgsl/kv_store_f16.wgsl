// Stores values of a head, after RoPE, in its row of halves: two per invocation.
fn keep(row: u32, c: u32, x: u32, key: bool, table: u32) {
  let word = half_bits(rotated(x, c, key, table)) | (half_bits(rotated(x, c + 1u, key, table)) << 16u);
  cache[row + c / 2u] = word;
}
