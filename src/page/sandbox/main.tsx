import { render } from 'preact';
import { App } from './app.tsx';
import { Model } from './model.ts';

const model = new Model();
render(<App model={model} />, document.getElementById('page')!);
model.start();
