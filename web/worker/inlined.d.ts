// 'inlined:NAME' is a file of dist/ that web/scripts/build.mjs embeds: scripts as text, binaries
// as gzipped base64.
declare module 'inlined:*' {
  const content: string;
  export default content;
}
