declare module '*.wgsl' {
  const text: string;
  export default text;
}
declare module '*/types.def' {
  /** All quantization types of ggml and QSF. A block of `values` values has `bytes` bytes. */
  const types: { name: string; id: number; values: number; bytes: number }[];
  export default types;
}
