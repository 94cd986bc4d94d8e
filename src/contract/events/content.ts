import type { EventType } from './names.ts';
import type { ValueOf } from './shape.ts';
import type { SHAPES } from './shapes.ts';

/** The content of each type, as far as its schema lets it through. What is not optional here is required there. */
export type EventContents = { [Type in EventType]: ValueOf<(typeof SHAPES)[Type]> };
