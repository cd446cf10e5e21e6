// What a query of an encoder sees: the keys from the first to the one before the second number at
// 2 * position of a table. It is in `vectors`, since only reads of constant memory are uniform, as
// barriers require.
fn begin_of(position: u32) -> u32 {
  return u32(vectors[p.partials + 2u * position]);
}
fn end_of(position: u32) -> u32 {
  return u32(vectors[p.partials + 2u * position + 1u]);
}
