declare module '*.wgsl' {
  const text: string;
  export default text;
}
declare module '*/types.def' {
  /** Every type of ggml and QSF: `values` of them are `bytes`. */
  const types: { name: string; id: number; values: number; bytes: number }[];
  export default types;
}
