declare module '*.wgsl' {
  const text: string;
  export default text;
}
declare module '*/codebooks.cpp' {
  /** Words of 16 hexadecimal digits each. */
  const sets: Record<'kIq2Xxs' | 'kIq2Xs' | 'kIq2S' | 'kIq1' | 'kIq3Xxs' | 'kIq3S', string[]>;
  export default sets;
}
declare module '*/types.def' {
  /** All quantization types of ggml and QSF. A block of `values` values has `bytes` bytes. */
  const types: { name: string; kind: string; id: number; values: number; bytes: number }[];
  export default types;
}
