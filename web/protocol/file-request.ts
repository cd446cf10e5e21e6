// Kinds of file requests while a model is opened. The numbers are those of src/open/opener.h.
export const enum FileRequestKind {
  /** Open the file `name`, number `file` of the model, and report its size to opened(). */
  File = 0,
  /** Read `length` bytes from `offset` of file `file`. */
  Bytes = 1,
  /** Read the whole small file `name`. Only for directories. */
  Text = 2,
  /** Nothing more: the header is complete. */
  Done = 3,
}
