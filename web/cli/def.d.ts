// Tables that C++ includes, as text (web/scripts/build.mjs).
declare module '*/spellings.def' {
  const text: string;
  export default text;
}
declare module '*/options.def' {
  const text: string;
  export default text;
}
