// Where the model comes from: an address, files chosen, or files dropped anywhere on the page.

import type { ModelSource } from 'sluice-llm';

import { byId } from './dom.js';
import { bytes, fileName } from './format.js';

export class SourcePicker {
  private readonly url = byId<HTMLInputElement>('url');
  private readonly file = byId<HTMLInputElement>('file');
  private files: File[] = [];

  /** Called whenever another model was chosen. */
  constructor(private readonly onChoose: () => void) {
    this.file.addEventListener('change', () => this.chooseFiles([...(this.file.files ?? [])]));
    this.url.addEventListener('change', () => this.chooseUrl(this.url.value));
    this.url.addEventListener('input', () => this.setFiles([]));
    this.acceptDrops();
  }

  /** What Engine.load takes; null when nothing was chosen. */
  get source(): ModelSource | null {
    if (this.files.length > 0) return this.files.length === 1 ? this.files[0]! : this.files;
    const address = this.url.value.trim();
    if (address === '') return null;
    return address.startsWith('hf:') ? address : new URL(address, location.href).href;
  }

  get name(): string {
    return this.files[0]?.name ?? fileName(this.url.value.trim());
  }

  chooseUrl(url: string): void {
    this.setFiles([]);
    this.url.value = url;
    if (url.trim()) this.onChoose();
  }

  private chooseFiles(files: File[]): void {
    if (files.length === 0) return;
    this.setFiles(files.sort((a, b) => a.name.localeCompare(b.name)));
    this.url.value = '';
    this.onChoose();
  }

  private setFiles(files: File[]): void {
    this.files = files;
    byId('file-name').textContent = files.map(({ name, size }) => `${name} (${bytes(size)})`).join(', ');
    if (files.length === 0) this.file.value = '';
  }

  private acceptDrops(): void {
    const drop = byId('drop');
    const hasFiles = (event: DragEvent): boolean => event.dataTransfer?.types.includes('Files') ?? false;
    document.addEventListener('dragover', (event) => {
      if (!hasFiles(event)) return;
      event.preventDefault();
      drop.hidden = false;
    });
    document.addEventListener('dragleave', (event) => {
      if (event.relatedTarget === null) drop.hidden = true;
    });
    document.addEventListener('drop', (event) => {
      drop.hidden = true;
      if (!hasFiles(event)) return;
      event.preventDefault();
      document.dispatchEvent(new CustomEvent('show-pane', { detail: 'model' }));
      this.chooseFiles([...(event.dataTransfer?.files ?? [])]);
    });
  }
}
