// What web/scripts/build.mjs puts in for 'inlined:NAME': a file of dist/, scripts as they are,
// binaries gzipped and in base64.
declare module 'inlined:*' {
  const content: string;
  export default content;
}
