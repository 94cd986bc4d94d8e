import { useEffect, useReducer } from 'preact/hooks';
import type { Model } from './model.ts';

/** Shows again what the model has, with each change of it. */
export function useModel(model: Model): Model {
  const [, again] = useReducer((count: number) => count + 1, 0);
  useEffect(() => model.listen(() => again(undefined)), [model]);
  return model;
}
