  // In place of the loop over tiles: each is read as codes for the rows of later groups, and as halves
  // for those of its own.
  for (var step = begin / TILE * 2u; step / 2u * TILE < until; step++) {
    let tile = step / 2u * TILE;
    let by_halves = step % 2u != 0u;
    let first_group = (p.first + row0 / p.group) / 64u;
    let last_group = (p.first + last_row / p.group) / 64u;
    let own = tile / 64u;
    if (select(last_group <= own, first_group > own || last_group < own, by_halves)) {
      continue;
    }
    as_halves = by_halves;
