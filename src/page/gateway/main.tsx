import { render } from 'preact';
import { App } from './app.tsx';
import { Model } from './model.ts';
import { takeToken } from './place.ts';

const model = new Model(takeToken());
render(<App model={model} />, document.getElementById('page')!);
model.start();
