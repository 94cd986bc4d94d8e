import { render } from 'preact';
import { App } from './app.tsx';
import { Model } from './model.ts';
import { takeToken } from './place.ts';

const model = new Model(takeToken());
const place = document.getElementById('page')!;
// What stood there was for the moment until now.
place.replaceChildren();
render(<App model={model} />, place);
model.start();
