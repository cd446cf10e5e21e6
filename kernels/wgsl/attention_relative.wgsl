// The bucket of the distance from a query to a key. BEHIND and AHEAD count up where a bucket ends.
fn bucket_of(query: u32, key: u32) -> u32 {
  if (key > query) {
    let far = min(key - query, REACH);
    return AHEAD;
  }
  let far = min(query - key, REACH);
  return BEHIND;
}
