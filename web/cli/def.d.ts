// Tables that C++ includes, as web/scripts/def.mjs reads them.
declare module '*/spellings.def' {
  const rows: { kind: string; names: string[]; what: string }[];
  export default rows;
}
declare module '*/options.def' {
  const rows: { js: string; cli: string[]; type: string; least: number; most: number }[];
  export default rows;
}
