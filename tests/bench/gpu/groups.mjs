// Groups of the kernels' test cases (tests/web/gpu/cases.ts), for their tests and for bench:gpu.

/** Each kind of case. */
export const formGroups = [
  'everyRow',
  'products',
  'norms',
  'vectors',
  'attention',
  'attentionQ4',
  'experts',
  'recurrent',
  'rareOps',
  'pictures',
  'sampling',
  'layer',
];
/** Also every type, and further sizes. */
export const allGroups = [
  ...formGroups,
  'everyType',
  'moreProducts',
  'rows',
  'moreAttention',
  'morePictures',
];
/** What int8 activations change. */
export const codedGroups = ['products', 'experts', 'rareOps', 'layer'];
/** What has kernels with subgroups. */
export const subgroupGroups = ['products', 'norms', 'attention', 'rareOps', 'sampling', 'layer'];
/** What runs other code without subgroups. */
export const reducedGroups = ['norms'];
