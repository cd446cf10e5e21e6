// The KV cache of one layer, in words; HOLD is read or read_write. A row is halves, or blocks of 32
// values in nine words or five: a float, then codes. Heads are p.key_head and p.value_head words apart,
// positions p.key_row and p.value_row.
@group(0) @binding(3) var<storage, HOLD> cache: array<u32>;
