/**
 * Small records stored in the same transaction as their values, such as the message that contained a value. A note is
 * never stored if the values are rejected.
 */
export interface Note {
  /** `room/subject/name`. */
  name: string;
  /** `undefined` deletes the note. */
  text: string | undefined;
}
