export * from './events/names.ts';
export { timestampMs } from './events/occurred-at.ts';
export { PROPERTIES } from './events/properties.ts';
export { lenient, recognise, unreadableReason } from './events/recognise.ts';
export { LIST, type Members, type Outline } from './events/shape.ts';
export { type EventContents, SHAPES } from './events/shapes.ts';
