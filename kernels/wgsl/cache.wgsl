// Keys and values of one layer, in words; HOLD is read or read_write. A row of halves, or blocks of
// 32 values of nine words: a float, then codes. Heads are p.key_head and p.value_head apart, places
// p.key_row and p.value_row.
@group(0) @binding(3) var<storage, HOLD> cache: array<u32>;
