#include "engine/train/foreign_names.h"

#include <algorithm>
#include <cctype>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/words.h"
#include "engine/train/run_keys.h"

namespace trireme::train {
namespace {

constexpr std::string_view kOfTheModel = "is of the model: its config.json says it (model.config)";

constexpr ForeignNames kNames[] = {
    // How long, and how it is seeded.
    {"train.steps", "", "",
     "num_train_steps max_steps train_iters max_iters num_iterations total_steps train_steps num_steps iterations "
     "iters "
     "training_steps total_num_steps total_train_steps"},
    {"", "", "a run is as long as train.steps says, in steps of train.global_batch sequences",
     "epochs num_train_epochs num_epochs max_epochs train_samples train_tokens max_tokens"},
    {"train.seed", "", "", "seed random_seed data_seed rng_seed"},
    // Batches.
    {"train.global_batch", "batch", "",
     "batch_size train_batch_size global_batch_size batch_size_global total_batch_size effective_batch_size "
     "global_train_batch_size batch"},
    {"train.micro_batch", "micro-batch", "",
     "per_device_train_batch_size micro_batch_size train_micro_batch_size_per_gpu local_batch_size device_batch_size "
     "per_gpu_train_batch_size batch_size_per_gpu mbs microbatch_size device_train_microbatch_size"},
    {"train.micro_batch", "micro-batch",
     "it follows: global batch / (train.micro_batch x layout.dp); choose train.micro_batch",
     "gradient_accumulation_steps grad_accum_steps grad_accumulation_steps accumulate_grad_batches "
     "batch_accumulation_per_replica gradient_accumulation accumulation_steps num_microbatches"},
    {"train.sequence", "sequence", "",
     "seq_len seq_length max_seq_len max_seq_length sequence_length block_size context_length max_length train_seq_len "
     "model_max_length ctx_len"},
    {"train.validation_micro_batches", "", "",
     "eval_iters val_max_steps eval_batches max_eval_steps limit_val_batches valid_steps"},
    {"train.micro_batch", "", "validation has the micro-batch of training: train.micro_batch",
     "per_device_eval_batch_size eval_batch_size"},
    // Numbers.
    {"train.precision", "precision", "",
     "bf16 fp16 fp32 dtype torch_dtype mixed_precision precision half param_dtype params_dtype amp compute_dtype "
     "mixed_precision_param bfloat16 float16 use_bf16 use_fp16 tf32"},
    {"train.fp32_gradients", "fp32-gradients", "",
     "accumulate_grad_in_fp32 accumulate_allreduce_grads_in_fp32 grad_accum_dtype mixed_precision_reduce reduce_dtype "
     "grad_dtype fp32_grad gradient_dtype"},
    {"", "", "FP8 is not there yet: train.precision is fp32, bf16 or fp16", "fp8 fp8_format fp8_recipe float8"},
    {"optimizer.loss_scale", "", "", "initial_loss_scale initial_scale_power loss_scale init_scale"},
    {"optimizer.loss_scale_growth", "", "", "loss_scale_window growth_interval scale_window"},
    // The optimizer.
    {"optimizer.learning_rate", "", "", "lr learning_rate max_lr peak_lr base_lr peak_learning_rate max_learning_rate"},
    {"optimizer.min_learning_rate", "", "", "min_lr min_learning_rate lr_min final_lr end_lr min_decay_lr eta_min"},
    {"optimizer.warmup_steps", "", "",
     "warmup warmup_steps warmup_iters lr_warmup_iters lr_warmup_steps num_warmup_steps warmup_num_steps"},
    {"optimizer.warmup_steps", "", "warm-up is counted in steps: optimizer.warmup_steps",
     "warmup_ratio lr_warmup_fraction warmup_fraction lr_warmup_samples"},
    {"optimizer.decay", "", "",
     "lr_scheduler_type lr_scheduler lr_decay_style lr_schedule scheduler decay_lr decay_type lr_decay "
     "learning_rate_scheduler lr_scheduler_name learning_rate_schedule"},
    {"optimizer.decay_steps", "", "",
     "lr_decay_iters lr_decay_steps decay_iters lr_wsd_decay_iters cooldown_steps decay_ratio warmdown_iters"},
    {"optimizer.beta1", "", "", "adam_beta1 beta1 beta_1"},
    {"optimizer.beta2", "", "", "adam_beta2 beta2 beta_2"},
    {"optimizer.beta1", "", "they are two keys: optimizer.beta1 and optimizer.beta2", "betas adam_betas"},
    {"optimizer.epsilon", "", "", "eps adam_eps adam_epsilon epsilon"},
    {"optimizer.weight_decay", "", "", "weight_decay wd adam_w_weight_decay"},
    {"optimizer.clip_norm", "", "",
     "grad_clip max_grad_norm clip_grad gradient_clipping clip_grad_norm max_norm gradient_clip_val grad_clip_norm "
     "grad_norm_clip"},
    {"", "", "the optimizer is AdamW, and there is no other",
     "optimizer optim optimizer_type optimizer_name optim_type optimizer.type optimizer.name momentum nesterov"},
    // The layout.
    {"layout.tp", "tp", "",
     "tp tensor_parallel tensor_parallel_size tensor_parallel_degree tensor_model_parallel_size model_parallel_size "
     "tp_size "
     "mp_size model_parallel tensor_parallelism"},
    {"layout.pp", "pp", "",
     "pp pipeline_parallel pipeline_parallel_size pipeline_parallel_degree pipeline_model_parallel_size pp_size "
     "pipe_parallel_size num_stages stages pipeline_parallelism"},
    {"layout.dp", "dp", "",
     "dp data_parallel data_parallel_size data_parallel_degree data_parallel_replicate_degree "
     "data_parallel_shard_degree "
     "dp_size dp_replicate dp_shard num_replicas data_parallelism"},
    {"layout.interleave", "interleave", "",
     "virtual_pipeline_model_parallel_size virtual_pipeline vpp num_layers_per_virtual_pipeline_stage "
     "virtual_pipeline_parallel_size "
     "num_virtual_stages_per_pipeline_rank virtual_pipeline_stages pipeline_parallel_layers_per_stage model_chunks "
     "vpp_size "
     "num_model_chunks"},
    {"layout.schedule", "schedule", "", "pipeline_parallel_schedule pp_engine pipeline_schedule pp_schedule"},
    {"layout.zero", "zero", "",
     "zero_stage zero_optimization zero zero_optimization_stage use_distributed_optimizer distributed_optimizer "
     "zero_level optimizer_sharding"},
    {"layout.zero", "zero", "layout.zero = 3 cuts weights, gradients and optimizer as FSDP does",
     "fsdp fsdp_config fully_shard sharding_strategy use_fsdp reshard_after_forward fsdp_sharding_strategy"},
    {"layout.recompute", "recompute", "",
     "activation_checkpointing activation_checkpoint recompute_granularity gradient_checkpointing "
     "checkpoint_activations "
     "recompute recompute_activations recompute_method activation_recompute ac_mode recompute_layer "
     "selective_ac_option "
     "activations_checkpoint_granularity recompute_num_layers"},
    {"layout.sequence_parallel", "sequence-parallel", "",
     "sequence_parallel enable_sequence_parallel sp sequence_parallelism tp_linear_async_communication"},
    {"layout.overlap", "", "", "overlap_grad_reduce overlap_comm delay_grad_reduce overlap_reduce"},
    {"layout.prefetch", "", "", "overlap_param_gather stage3_prefetch_bucket_size forward_prefetch backward_prefetch"},
    {"layout.bucket", "", "", "reduce_bucket_size allgather_bucket_size bucket_size ddp_bucket_size bucket_cap_mb"},
    {"layout.order", "order", "", "rank_order parallel_order"},
    // Not there.
    {"", "", "context parallelism is not planned or trained yet",
     "cp cp_size context_parallel context_parallel_size context_parallel_degree cp_comm_type ulysses ulysses_degree "
     "ring_attention context_parallelism"},
    {"", "", "expert parallelism is not planned or trained yet",
     "ep ep_size expert_parallel expert_parallel_size expert_parallel_degree expert_model_parallel_size "
     "expert_tensor_parallel_size etp expert_parallelism"},
    {"", "", "mixtures of experts are not planned or trained yet",
     "num_experts moe moe_layer_freq moe_router_topk top_k_experts n_experts"},
    {"", "", "offloading is not there: layout.zero and layout.recompute are what takes less memory",
     "offload cpu_offload offload_optimizer offload_param optimizer_cpu_offload fsdp_offload_params"},
    {"", "", "adapters are not there: all weights are trained", "lora lora_r lora_rank lora_alpha peft"},
    // The model.
    {"", "layers", kOfTheModel, "num_layers n_layer n_layers num_hidden_layers layers depth encoder_num_layers"},
    {"", "hidden", kOfTheModel, "hidden_size n_embd d_model hidden_dim embed_dim dim model_dim"},
    {"", "heads", kOfTheModel, "num_attention_heads n_head n_heads num_heads heads attention_heads"},
    {"", "kv-heads", kOfTheModel, "num_key_value_heads num_query_groups n_kv_heads n_kv_head kv_heads num_kv_heads"},
    {"", "head-dim", kOfTheModel, "head_dim kv_channels d_head head_size"},
    {"", "ffn", kOfTheModel, "ffn_hidden_size intermediate_size n_inner ffn_dim mlp_dim d_ff ffn hidden_dim_ffn"},
    {"", "vocabulary", kOfTheModel, "vocab_size padded_vocab_size vocabulary_size n_vocab vocab"},
    {"", "positions", kOfTheModel, "max_position_embeddings n_positions max_positions"},
    {"", "tied", kOfTheModel,
     "tie_word_embeddings tied_embeddings share_embeddings_and_output_weights tie_embeddings weight_tying"},
    {"", "family", kOfTheModel, "model_type flavor arch model_family"},
    {"", "", kOfTheModel,
     "dropout attention_dropout hidden_dropout attn_pdrop resid_pdrop embd_pdrop rope_theta rotary_base rms_norm_eps "
     "norm_epsilon layernorm_epsilon init_method_std initializer_range normalization position_embedding_type swiglu "
     "activation_function hidden_act bias group_query_attention"},
    {"model.config", "", "",
     "model model_name_or_path model_name config_name model_path hf_config_path model_config model_id"},
    {"model.weights", "", "",
     "init_from initialize_from pretrained_checkpoint pretrained_model pretrained_model_name_or_path hf_weights "
     "init_weights finetune initial_load_path"},
    // Data.
    {"data.train", "", "",
     "dataset data_path dataset_path train_data_path data_dir train_data train_file input_bin dataset_name data_prefix "
     "train_files dataset_folder train_bin datasets training_data"},
    {"data.validation", "", "",
     "valid_data_path val_data_path eval_dataset validation_file input_val_bin val_data val_bin validation_data "
     "eval_data valid_data"},
    {"data.train", "", "trireme data tokenize TEXT --out DIR writes token files, and data.train names one",
     "tokenizer tokenizer_path tokenizer_name tokenizer_type tokenizer_model vocab_file merge_file "
     "tokenizer_name_or_path "
     "hf_tokenizer"},
    {"data.ignore", "", "", "ignore_index pad_token_id label_ignore_index pad_token"},
    {"train.threads", "", "", "num_threads omp_num_threads threads cpu_threads"},
    {"", "", "tokens are read where they lie: there are no workers that load them",
     "num_workers dataloader_num_workers dataloader_workers data_loader_workers num_loading_workers"},
    // Saves, logs, evaluation.
    {"train.validation_interval", "", "",
     "eval_interval eval_steps val_interval evaluation_interval eval_every validate_every val_check_interval "
     "evaluation_steps val_loss_every"},
    {"train.log_interval", "", "", "log_interval logging_steps log_freq log_every print_interval steps_per_print"},
    {"checkpoint.interval", "", "",
     "save_steps enable_checkpoint save_interval save_every checkpoint_interval checkpoint_every save_freq "
     "ckpt_interval "
     "save_every_steps "
     "checkpoint_freq save_frequency"},
    {"checkpoint.keep_last", "", "",
     "save_total_limit keep_latest_k max_checkpoints keep_last_n keep_last_k checkpoints_total_limit"},
    {"checkpoint.async", "", "", "async_save async_mode async_checkpoint async_checkpointing"},
    {"checkpoint.resume", "", "",
     "resume_from_checkpoint load resume resume_from load_checkpoint resume_checkpoint_path resume_path ckpt_path "
     "load_dir load_path resume_from_path"},
    {"out.directory", "", "",
     "output_dir save out_dir checkpoint.folder output dump_folder save_dir output_path checkpoint_dir "
     "checkpoints_path save_path out "
     "output_log_dir checkpoint_path run_dir"},
    {"out.overwrite", "", "", "overwrite_output_dir overwrite force"},
    {"out.trace", "", "", "profile profiling enable_profiling profiler trace use_pytorch_profiler"},
    {"", "", "a line a step is in metrics.jsonl of out.directory, for any tool to read",
     "wandb wandb_project wandb_log wandb_run_name report_to tensorboard tensorboard_dir enable_wandb wandb_entity "
     "wandb_exp_name enable_tensorboard logging_dir mlflow"},
    // How it is run.
    {"train.deadline", "", "", "distributed_timeout_minutes ddp_timeout nccl_timeout train_timeout_seconds timeout"},
    {"train.start_deadline", "", "", "init_timeout_seconds init_timeout"},
    {"supervise.hosts", "", "", "hostfile hosts hostlist nodelist host_file"},
    {"supervise.launcher", "", "", "launcher distributed_launcher"},
    {"supervise.launcher", "", "ranks are threads of one process, or MPI connects them: supervise.launcher",
     "backend ddp_backend distributed_backend dist_backend"},
    {"train.threads", "", "a rank computes on CPU threads: train.threads",
     "device cuda gpu use_gpu accelerator use_cpu"},
    {"supervise.retries", "", "", "max_restarts retries num_restarts"},
    {"", "devices", "ranks are layout.dp x layout.tp x layout.pp, on the hosts of supervise.hosts",
     "nproc_per_node nnodes num_gpus num_nodes world_size gpus devices n_gpus local_rank nodes num_processes ngpu"},
    {"", "", "kernels are the program's own: nothing is compiled for a run",
     "compile torch_compile flash_attention use_flash_attn flash_attn attn_implementation fused_kernels use_flash"},
};

// Lower case, underscores, no dashes before it.
std::string plain(std::string_view written) {
  std::string text(written.substr(std::min(written.find_first_not_of('-'), written.size())));
  for (char& c : text) c = c == '-' ? '_' : static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return text;
}

// What is behind the last point.
std::string last_part(const std::string& name) { return name.substr(name.rfind('.') + 1); }

const ForeignNames* row_of(std::string_view name) {
  for (const ForeignNames& row : kNames) {
    const std::vector<std::string_view> names = words_of(row.names);
    if (std::ranges::find(names, name) != names.end()) return &row;
  }
  return nullptr;
}

// Keys of the last part that is written, whatever the section.
std::vector<std::string> keys_of_name(const std::string& name) {
  std::vector<std::string> found;
  for (const RunKey& key : run_keys()) {
    if (last_part(key.name) == name) found.push_back(key.name);
  }
  return found;
}

}  // namespace

std::span<const ForeignNames> foreign_names() { return kNames; }

bool is_section(std::string_view name) {
  const std::string start = std::string(name) + ".";
  return std::ranges::any_of(run_keys(), [&](const RunKey& key) { return key.name.starts_with(start); });
}

const ForeignNames* find_foreign(std::string_view written) {
  const std::string name = plain(written);
  if (const ForeignNames* whole = row_of(name)) return whole;
  if (const ForeignNames* last = row_of(last_part(name))) return last;
  // "zero_optimization.stage": the table that it is in.
  const std::string_view section = std::string_view(name).substr(0, name.find('.'));
  return section.size() < name.size() && !is_section(section) ? row_of(section) : nullptr;
}

Failure unknown_key(const std::string& name) {
  const std::string last = last_part(plain(name));
  if (const std::vector<std::string> same = keys_of_name(last); !same.empty()) {
    return wrong(name, "", "unknown key", same.front());
  }
  if (const ForeignNames* foreign = find_foreign(name)) {
    if (foreign->advice.empty()) return wrong(name, "", "unknown key", std::string(foreign->key));
    return wrong(name, "", "unknown key", std::string(foreign->advice));
  }
  std::vector<std::string> known, lasts;
  for (const RunKey& key : run_keys()) {
    known.push_back(key.name);
    lasts.push_back(last_part(key.name));
  }
  if (std::string nearest = nearest_word(name, known); !nearest.empty()) return wrong(name, "", "unknown key", nearest);
  const std::string nearest = nearest_word(last, lasts);  // of another section
  return wrong(name, "", "unknown key", nearest.empty() ? "" : keys_of_name(nearest).front());
}

}  // namespace trireme::train
