// Writes a whole file of a private file system, atomically. Safari before 26 has no createWritable():
// there a worker of its own writes it with a synchronous handle and then renames it.

/** Runs in the worker. It is sent as text, so it uses nothing outside. */
async function writeInWorker({
  folder,
  name,
  parts,
}: {
  folder: FileSystemDirectoryHandle;
  name: string;
  parts: Uint8Array[];
}): Promise<void> {
  type Handle = FileSystemFileHandle & {
    createSyncAccessHandle(): Promise<{
      write(bytes: Uint8Array, options: { at: number }): number;
      truncate(size: number): void;
      flush(): void;
      close(): void;
    }>;
    move?(name: string): Promise<void>;
  };
  const open = async (as: string): Promise<Handle> =>
    (await folder.getFileHandle(as, { create: true })) as Handle;
  let handle = await open(`${name}.part`);
  if (!handle.move) handle = await open(name);
  const file = await handle.createSyncAccessHandle();
  try {
    file.truncate(0);
    let at = 0;
    for (const part of parts) {
      if (file.write(part, { at }) !== part.length)
        throw new DOMException('storage full', 'QuotaExceededError');
      at += part.length;
    }
    file.flush();
  } finally {
    file.close();
  }
  await handle.move?.(name);
}

/** Replaces the file by these parts. Rejects with the platform's error. */
export async function writeFile(
  folder: FileSystemDirectoryHandle,
  name: string,
  parts: readonly (Uint8Array<ArrayBuffer> | string)[],
): Promise<void> {
  const file = await folder.getFileHandle(name, { create: true });
  if (typeof file.createWritable !== 'function') return inWorker(folder, name, parts);
  const out = await file.createWritable();
  try {
    for (const part of parts) await out.write(part);
    await out.close();
  } catch (error) {
    await out.abort().catch(() => {});
    throw error;
  }
}

function inWorker(
  folder: FileSystemDirectoryHandle,
  name: string,
  parts: readonly (Uint8Array | string)[],
): Promise<void> {
  const code =
    `const work=${writeInWorker};onmessage=({data})=>work(data).then(()=>postMessage(null),` +
    '({name,message})=>postMessage({name,message}))';
  const url = URL.createObjectURL(new Blob([code], { type: 'text/javascript' }));
  const worker = new Worker(url);
  const encoder = new TextEncoder();
  const bytes = parts.map((part) => (typeof part === 'string' ? encoder.encode(part) : part));
  return new Promise<void>((resolve, reject) => {
    worker.onmessage = ({ data }: MessageEvent<{ name: string; message: string } | null>) =>
      data ? reject(new DOMException(data.message, data.name)) : resolve();
    worker.onerror = ({ message }) => reject(new DOMException(message, 'NotAllowedError'));
    worker.postMessage({ folder, name, parts: bytes });
  }).finally(() => {
    worker.terminate();
    URL.revokeObjectURL(url);
  });
}
