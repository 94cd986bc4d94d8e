/** What the package `tagferry-sandbox` offers to a test. */
export { isFull, type Mark } from './exam/mark.ts';
export { examineReceiver, type ReceiverUnderExam } from './exam/receiver-exam.ts';
export * from './sandbox.ts';
