import { render } from 'preact';
import { App } from './app.tsx';
import { Model } from './model.ts';
import { removeToken } from './place.ts';

const model = new Model(removeToken());
const place = document.getElementById('page')!;
// Remove the placeholder in the HTML file.
place.replaceChildren();
render(<App model={model} />, place);
model.start();
