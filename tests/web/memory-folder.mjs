// A directory of the origin private file system in memory, with the part of FileSystemDirectoryHandle
// that web/sessions.ts uses.

export function memoryFolder() {
  const files = new Map();
  const handleOf = (name) => ({
    getFile: async () => new Blob([files.get(name)]),
    createWritable: async () => {
      const parts = [];
      return {
        write: async (part) => void parts.push(part),
        close: async () => void files.set(name, await new Blob(parts).arrayBuffer()),
        abort: async () => {},
      };
    },
  });
  return {
    async getFileHandle(name, { create = false } = {}) {
      if (!files.has(name) && !create) throw new DOMException(name, 'NotFoundError');
      if (!files.has(name)) files.set(name, '');
      return handleOf(name);
    },
    async removeEntry(name) {
      if (!files.delete(name)) throw new DOMException(name, 'NotFoundError');
    },
    async *keys() {
      yield* [...files.keys()];
    },
  };
}
