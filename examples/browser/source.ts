// Selects the model: a URL, chosen files, or files dropped anywhere on the page.

import { SluiceError, type ModelSource } from 'sluice-llm';

import { byId, on } from './dom.js';
import { bytes, fileName } from './format.js';
import { isPicture } from './pictures.js';

/** What is entered instead of the address of a file: the name of a model, or a page about one. */
export interface Lookup {
  name?: string;
  repository?: string;
}

const kHubPage = /^https?:\/\/(?:www\.)?huggingface\.co\/([\w.-]+\/[\w.-]+)\/?(?:tree\/.*)?$/;
const kHubFile = /^(https?:\/\/(?:www\.)?huggingface\.co\/[\w.-]+\/[\w.-]+)\/blob\//;

export class SourcePicker {
  private readonly url = byId<HTMLInputElement>('url');
  private readonly file = byId<HTMLInputElement>('file');
  private readonly vision = byId<HTMLInputElement>('projector');
  private files: File[] = [];
  private projectorFile: File | undefined;
  private readonly usual = this.vision.placeholder;

  /** `onChoose`: another model was chosen. `onEdit`: the address is being edited. */
  constructor(
    private readonly onChoose: () => unknown,
    onEdit: () => unknown,
  ) {
    on(this.file, 'change', () => this.chooseFiles([...(this.file.files ?? [])]));
    on(this.vision, 'change', () => {
      this.setProjector(undefined);
      return this.empty ? undefined : this.onChoose();
    });
    on(this.url, 'change', () => this.chooseUrl(this.url.value));
    on(this.url, 'input', () => {
      this.setFiles([]);
      return onEdit();
    });
    this.acceptDrops();
  }

  /** Source for Engine.load; null if nothing was chosen. INVALID_ARGUMENT for an invalid URL. */
  get source(): ModelSource | null {
    if (this.files.length > 0) return this.files.length === 1 ? this.files[0]! : this.files;
    const address = this.url.value.trim();
    if (address === '') return null;
    if (address.startsWith('hf:')) return address;
    let url: URL;
    try {
      url = new URL(address.replace(kHubFile, '$1/resolve/'), location.href);
    } catch {
      throw new SluiceError('INVALID_ARGUMENT', `“${address}” is not a valid URL.`);
    }
    if (/^(https?|blob|data):$/.test(url.protocol)) return url.href;
    throw new Error('The page reads https addresses and files that you choose or drop here.');
  }

  /** Projector for Engine.load; undefined: none. */
  get projector(): ModelSource | undefined {
    return this.projectorFile ?? (this.vision.value.trim() || undefined);
  }

  /** null if the address can be one of a file. */
  get lookup(): Lookup | null {
    const address = this.url.value.trim();
    if (this.files.length > 0 || address === '') return null;
    const repository = kHubPage.exec(address)?.[1];
    if (repository) return { repository };
    return /^[\w -]+$/.test(address) ? { name: address } : null;
  }

  get empty(): boolean {
    return this.files.length === 0 && this.url.value.trim() === '';
  }

  get name(): string {
    return this.files[0]?.name ?? fileName(this.url.value.trim());
  }

  chooseUrl(url: string): unknown {
    this.setUrl(url);
    return url.trim() && this.onChoose();
  }

  /** Sets the address without onChoose(). */
  setUrl(url: string): void {
    this.setFiles([]);
    this.url.value = url;
  }

  private chooseFiles(files: File[]): unknown {
    if (files.length === 0) return null;
    const sorted = files.sort((a, b) => a.name.localeCompare(b.name));
    const isProjector = ({ name }: File): boolean => /mmproj/i.test(name);
    const models = sorted.filter((file) => !isProjector(file));
    this.setFiles(models.length > 0 ? models : sorted);
    if (models.length > 0) this.setProjector(sorted.find(isProjector));
    this.url.value = '';
    return this.onChoose();
  }

  private setFiles(files: File[]): void {
    this.files = files;
    byId('file-name').textContent = files
      .map(({ name, size }) => `${name} (${bytes(size)})`)
      .join(', ');
    if (files.length === 0) this.file.value = '';
  }

  private setProjector(file: File | undefined): void {
    this.projectorFile = file;
    if (file) this.vision.value = '';
    this.vision.placeholder = file?.name ?? this.usual;
  }

  private acceptDrops(): void {
    const drop = byId('drop');
    const hasFiles = (event: DragEvent): boolean =>
      event.dataTransfer?.types.includes('Files') ?? false;
    on<DragEvent>(document, 'dragover', (event) => {
      if (!hasFiles(event)) return;
      event.preventDefault();
      drop.hidden = false;
    });
    on<DragEvent>(document, 'dragleave', (event) => {
      if (event.relatedTarget === null) drop.hidden = true;
    });
    on<DragEvent>(document, 'drop', (event) => {
      drop.hidden = true;
      if (!hasFiles(event)) return null;
      event.preventDefault();
      const files = [...(event.dataTransfer?.files ?? [])];
      if (files.every(isPicture))
        return document.dispatchEvent(new CustomEvent('pictures', { detail: files }));
      document.dispatchEvent(new CustomEvent('show-pane', { detail: 'model' }));
      return this.chooseFiles(files);
    });
  }
}
