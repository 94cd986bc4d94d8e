export type { EventContents } from './events/content.ts';
export * from './events/names.ts';
export { timestampMs } from './events/occurred-at.ts';
export { PROPERTIES } from './events/properties.ts';
export { recognise } from './events/recognise.ts';
export { type JsonSchema, LIST, type Members, type Outline } from './events/shape.ts';
export { SHAPES } from './events/shapes.ts';
