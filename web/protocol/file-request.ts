// What opening a model asks for (src/open/opener.h), whichever module opens it.
export const enum FileRequestKind {
  /** Open the file `name`, which is number `file` of the model: opened(). */
  File = 0,
  /** `length` bytes from `offset` of file `file`. */
  Bytes = 1,
  /** The whole of the small file `name`, of a directory alone. */
  Text = 2,
  /** Nothing: the header is there. */
  Done = 3,
}
