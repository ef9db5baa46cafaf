"""The engines that answer: ``port`` says what one must do, each folder is one."""
